"""Prefix of the metrics of members, read by `sweep --together` alone."""

OF_MEMBERS = "member_"
