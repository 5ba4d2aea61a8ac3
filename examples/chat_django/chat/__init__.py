"""The example's one Django package."""
