"""An agent that knows the weather everywhere, without looking, and the action by which it does."""
