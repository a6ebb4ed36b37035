"""An action that knows the weather everywhere, without looking."""
