"""An analyst: an agent that analyses reports and figures."""
