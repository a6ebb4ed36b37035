"""DynamoDB, S3 and SQS: one table, one bucket, a FIFO queue per tier. Needs the extra `aws`."""
