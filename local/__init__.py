"""The local AWS: an emulator in one process that the real CDK app is deployed into (development only).

Product code never imports this package.
"""
