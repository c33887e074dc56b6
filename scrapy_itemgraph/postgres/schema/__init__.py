"""The tables by subject; `postgres.tables` gathers them. Nothing else imports these modules."""
