"""Code that tests of different kinds share; pytest puts `tests/` on the path.

Code that users need, too, is in `mail.testing`.
"""
