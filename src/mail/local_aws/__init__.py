"""The deployment of `template.yaml` on one machine, without Docker or an AWS account: `mail local-aws`."""
