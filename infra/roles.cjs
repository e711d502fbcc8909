/**
 * One role for each function, with what that function does and nothing else. Read it as a table:
 * who may do what (policies.yml). Beside that each has network interfaces, which Lambda makes for
 * it, and writes its own log and nobody else's.
 */
const ROLES = {
  GetPlayer: ['DatabaseAsApiPolicy'],
  SpendCoins: ['DatabaseAsApiPolicy', 'CachePolicy'],
  TransferCoins: ['DatabaseAsApiPolicy', 'CachePolicy'],
  CreatePurchase: ['DatabaseAsApiPolicy', 'CachePolicy'],
  GetPurchase: ['DatabaseAsApiPolicy'],
  AwardBadge: ['CachePolicy', 'BadgesReadPolicy', 'BadgesWritePolicy'],
  GetBadges: ['BadgesReadPolicy'],
  Health: ['DatabaseAsApiPolicy', 'CachePolicy', 'BadgesReadPolicy'],
  Purge: ['DatabaseAsPurgePolicy', 'DeadLettersPolicy'],
  Migrate: ['MasterPasswordPolicy'],
};

const role = (name, policies) => ({
  Type: 'AWS::IAM::Role',
  Properties: {
    AssumeRolePolicyDocument: {
      Version: '2012-10-17',
      Statement: [
        {
          Effect: 'Allow',
          Principal: { Service: 'lambda.amazonaws.com' },
          Action: 'sts:AssumeRole',
        },
      ],
    },
    ManagedPolicyArns: ['NetworkInterfacesPolicy', ...policies].map((Ref) => ({ Ref })),
    Policies: [
      {
        PolicyName: 'own-logs',
        PolicyDocument: {
          Version: '2012-10-17',
          Statement: [
            {
              Effect: 'Allow',
              Action: ['logs:CreateLogStream', 'logs:PutLogEvents'],
              Resource: { 'Fn::GetAtt': [`${name}LogGroup`, 'Arn'] },
            },
          ],
        },
      },
    ],
  },
});

module.exports = {
  Resources: Object.fromEntries(
    Object.entries(ROLES).map(([name, policies]) => [`${name}Role`, role(name, policies)]),
  ),
};
