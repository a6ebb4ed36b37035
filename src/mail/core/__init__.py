"""The MAIL protocol and engine: pure decisions, and one loop that performs them through ports."""
