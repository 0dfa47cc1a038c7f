"""The CDK app: what is deployed for one stage."""
