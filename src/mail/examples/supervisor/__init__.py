"""A supervisor: it takes the user's questions, has others answer their parts, and puts the answers together."""
