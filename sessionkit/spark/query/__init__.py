"""Starting a query: the plan, the sinks, and the rules that join them."""
