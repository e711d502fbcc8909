#!/bin/sh
# LocalStack runs this when it is ready: it makes the table of the deployment's template.
set -eu
table="${DYNAMODB_TABLE:-backstop}"

# `npm start` makes it too, and may have been quicker.
if awslocal dynamodb describe-table --table-name "$table" >/dev/null 2>&1; then
  exit 0
fi

awslocal dynamodb create-table --cli-input-json '{
  "TableName": "'"$table"'",
  "BillingMode": "PAY_PER_REQUEST",
  "AttributeDefinitions": [{ "AttributeName": "pk", "AttributeType": "S" }],
  "KeySchema": [{ "AttributeName": "pk", "KeyType": "HASH" }]
}' >/dev/null

awslocal dynamodb wait table-exists --table-name "$table"

awslocal dynamodb update-time-to-live --cli-input-json '{
  "TableName": "'"$table"'",
  "TimeToLiveSpecification": { "AttributeName": "expires_at", "Enabled": true }
}' >/dev/null
