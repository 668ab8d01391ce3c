"""The pages for users and developers, and what makes some of them."""
