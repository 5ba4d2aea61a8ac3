"""Decisions about backlogs of subscriptions: messages that are not acknowledged, leases, order, pace. Sans-I/O."""
