"""What is told of a running engine: metrics (`metrics`), traces (`tracing`) and lines of the log (`activity`).

Only `bootstrap` imports them, and only those that the configuration asks for: the libraries behind them are extras.
"""
