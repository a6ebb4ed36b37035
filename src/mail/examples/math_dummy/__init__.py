"""An action that calculates."""
