"""The ways of Spark users to bring a package to a cluster: see docs/deploying.md."""
