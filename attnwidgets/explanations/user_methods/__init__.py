"""Methods of users: registered, checked on small inputs, with a report of failures."""
