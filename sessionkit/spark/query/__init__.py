"""Starting a query: its plan, its sink, and the rules that connect them."""
