"""Where tasks live: one module per database, all behind the ports of `mail.core.ports`."""
