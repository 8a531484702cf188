"""Why a session is open or closed, in words and as a picture."""
