"""A project with functions that do nothing useful, but show how they are run."""

from pathlib import Path

TEMPLATE = """\
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Parameters:
  Greeting: { Type: String, Default: hello }
Globals:
  Function:
    Runtime: python3.12
    CodeUri: code/
    Timeout: 2
    Environment: { Variables: { GREETING: !Ref Greeting } }
Resources:
  Dead:
    Type: AWS::SQS::Queue
    Properties: { QueueName: dead.fifo, FifoQueue: true }
  Work:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: work.fifo
      FifoQueue: true
      VisibilityTimeout: 3
      RedrivePolicy: { deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 2 }
  Calm:
    Type: AWS::SQS::Queue
    Properties: { QueueName: calm.fifo, FifoQueue: true, VisibilityTimeout: 300 }
  WorkFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: toys.work
      Events:
        Work:
          Type: SQS
          Properties:
            Queue: !GetAtt Work.Arn
            BatchSize: 1
            FunctionResponseTypes: [ReportBatchItemFailures]
        CalmWork: { Type: SQS, Properties: { Queue: !GetAtt Calm.Arn, BatchSize: 1 } }
  DeadFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: toys.bury
      Events:
        Dead: { Type: SQS, Properties: { Queue: !GetAtt Dead.Arn, BatchSize: 1 } }
  EchoFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: toys.echo
      Events:
        Echo: { Type: HttpApi, Properties: { Path: /echo, Method: any } }
        Named: { Type: HttpApi, Properties: { Path: "/echo/{name}", Method: get } }
        Deep: { Type: HttpApi, Properties: { Path: "/deep/{path+}", Method: get } }
  AnswerFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: toys.answer
      Events:
        Answer: { Type: HttpApi, Properties: { Path: /answer, Method: post } }
  BrokenFunction:
    Type: AWS::Serverless::Function
    Properties:
      Handler: broken.handler
      Events:
        Broken: { Type: HttpApi, Properties: { Path: /broken, Method: get } }
"""

TOYS = """
import json
import os
import time


def note(**what):
    with open("../log.jsonl", "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "at": time.time(), **what}) + "\\n")


def work(event, context):
    (record,) = event["Records"]
    order = json.loads(record["body"])
    receives = int(record["attributes"]["ApproximateReceiveCount"])
    group = record["attributes"]["MessageGroupId"]
    note(event="begin", name=order["name"], group=group, receives=receives)
    time.sleep(order.get("sleep", 0))
    if receives in order.get("dies", ()):
        os._exit(3)
    if receives in order.get("raises", ()):
        raise ValueError("no")
    if receives in order.get("fails", ()):
        return {"batchItemFailures": [{"itemIdentifier": record["messageId"]}]}
    note(event="end", name=order["name"], group=group)


def bury(event, context):
    note(event="buried", name=json.loads(event["Records"][0]["body"])["name"])


def echo(event, context):
    about = {
        "remaining": context.get_remaining_time_in_millis(),
        "arn": context.invoked_function_arn,
        "name": context.function_name,
        "greeting": os.environ["GREETING"],
        "folder": os.getcwd(),
        "pid": os.getpid(),
    }
    return {"statusCode": 200, "body": json.dumps({"event": event, "context": about})}


def answer(event, context):
    order = json.loads(event["body"])
    time.sleep(order.get("sleep", 0))
    if order.get("raise"):
        raise ValueError("no")
    return order["answer"]
"""

BROKEN = """
raise RuntimeError("it can't be imported")
"""


def make_toys(folder: Path) -> Path:
    """Write the project; returns its template."""
    code = folder / "code"
    code.mkdir()
    (code / "toys.py").write_text(TOYS, encoding="utf-8")
    (code / "broken.py").write_text(BROKEN, encoding="utf-8")
    template = folder / "template.yaml"
    template.write_text(TEMPLATE, encoding="utf-8")
    return template
