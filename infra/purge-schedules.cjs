/**
 * One schedule for each worker of the purge, since CloudFormation has no loops. They are alike: each
 * starts a run once a minute, and runs that overlap pass by each other's batches.
 */
const MAX = 64;

async function workers({ resolveVariable }) {
  const given = await resolveVariable('param:purgeWorkers');
  const count = Number(given);
  if (Number.isInteger(count) && count >= 1 && count <= MAX) return count;
  const sentence = `purgeWorkers is ${given}: it must be a whole number from 1 to ${MAX}.`;
  // serverless prints the stack, which says nothing more.
  throw Object.assign(new Error(sentence), { stack: sentence });
}

async function resources({ resolveVariable }) {
  const name = await resolveVariable('self:custom.name');
  const count = await workers({ resolveVariable });
  const schedules = Array.from({ length: count }, (_, index) => [
    `PurgeSchedule${index}`,
    schedule(`${name}-purge-${index}`),
  ]);
  return { Resources: Object.fromEntries(schedules) };
}

const schedule = (name) => ({
  Type: 'AWS::Scheduler::Schedule',
  Properties: {
    Name: name,
    Description: 'Starts a run of the purge',
    ScheduleExpression: 'rate(1 minute)',
    FlexibleTimeWindow: { Mode: 'OFF' },
    Target: {
      Arn: { 'Fn::GetAtt': ['PurgeLambdaFunction', 'Arn'] },
      RoleArn: { 'Fn::GetAtt': ['PurgeScheduleRole', 'Arn'] },
      // The next minute is the retry.
      RetryPolicy: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: 60 },
      DeadLetterConfig: { Arn: { 'Fn::GetAtt': ['PurgeDeadLetters', 'Arn'] } },
    },
  },
});

module.exports = { workers, resources };
