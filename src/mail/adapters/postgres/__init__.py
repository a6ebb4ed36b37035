"""PostgreSQL: one database, any number of servers. Needs the extra `postgres`."""
