"""Recipes, the tasks they run on, and the runner that trains and tests them."""
