"""Where moto differs from AWS: each difference is shown here, and the tests that it matters to run on other engines.

| difference | tests that don't run on moto |
| --- | --- |
| SQS accepts a message without a body | `test_sqs_publish.py`: what is refused |

Limits of size and number, which moto doesn't enforce either, are checked by `support.engines.dynamodb_limits` on every
engine.
"""

from support.engines.aws import make_client
from support.engines.sqs import make_delivery_queue


def test_sqs_accepts_a_message_without_a_body() -> None:
    client = make_client("moto", "sqs")
    url = make_delivery_queue(client)
    sent = client.botocore.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": ""}])
    assert [each["Id"] for each in sent["Successful"]] == ["1"]
    client.close()
