"""Rows as Arrow tables: their columns, their order, and the objects of the users' classes."""
