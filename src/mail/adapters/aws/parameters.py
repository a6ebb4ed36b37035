"""Secrets in SSM: the parameters under one path, such as `/mail/prod/OPENAI_API_KEY`."""

from mail.adapters.aws.client import AwsClient, Refused


class Parameters:
    """The parameters under a path, decrypted."""

    def __init__(self, ssm: AwsClient, path: str) -> None:
        self._ssm = ssm
        self._path = path.rstrip("/")

    async def get(self, name: str) -> str | None:
        """Return a value; None if it is missing or empty. Raises StoreUnavailable."""
        try:
            answer = await self._ssm.call(
                "get_parameter",
                expect=("ParameterNotFound", "ParameterVersionNotFound"),
                Name=f"{self._path}/{name}",
                WithDecryption=True,
            )
        except Refused:
            return None
        return str(answer["Parameter"]["Value"]) or None

    def read_all(self) -> dict[str, str]:
        """Return all values by name. Blocks, and raises the errors of botocore."""
        pages = self._ssm.botocore.get_paginator("get_parameters_by_path")
        return {
            parameter["Name"].rsplit("/", 1)[-1]: parameter["Value"]
            for page in pages.paginate(Path=self._path, WithDecryption=True)
            for parameter in page["Parameters"]
        }
