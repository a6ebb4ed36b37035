"""A deployed stack of `template.yaml`, as the environment that its functions have."""

from mail.adapters.aws.client import Aws
from mail.errors import ConfigurationError

VARIABLES = {
    "TableName": "MAIL_TABLE",
    "BucketName": "MAIL_BUCKET",
    "TurnQueueUrls": "MAIL_TURN_QUEUES",
    "DeliveryQueueUrl": "MAIL_DELIVERY_QUEUE",
    "ApiUrl": "MAIL_BASE_URL",
    "RetentionDays": "MAIL_RETENTION_DAYS",
    "Keep": "MAIL_KEEP",
    "SecretsPath": "MAIL_SECRETS_PATH",
    "SwarmName": "MAIL_SWARM_NAME",
    "SwarmSource": "MAIL_SWARM_SOURCE",
}
"""The variables of a function that runs turns, by the output or the parameter that has their value."""


def read_stack(account: Aws, name: str) -> dict[str, str]:
    """Return the variables of a stack's turns. It blocks. Raises ConfigurationError."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    try:
        (stack,) = account.client("cloudformation").botocore.describe_stacks(StackName=name)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise ConfigurationError(f"the stack {name} can't be read: {error}") from error
    values = {each["ParameterKey"]: each.get("ParameterValue", "") for each in stack.get("Parameters", ())}
    values |= {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
    if "TurnQueueUrls" not in values:
        raise ConfigurationError(
            f"{name} is not a stack of MAIL's template.yaml, or its deployment has not ended"
        )
    found = {variable: values[key] for key, variable in VARIABLES.items() if values.get(key)}
    return {**found, "POWERTOOLS_SERVICE_NAME": name}
