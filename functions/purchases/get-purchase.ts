import { json, Problem } from '../../shared/index.ts';
import { deployedService, type QueryRoute } from '../../shared/service/index.ts';
import { findReceipt } from './receipts.ts';

export const getPurchase: QueryRoute = {
  name: 'get-purchase',
  run: async ({ principal, request: { params }, db }) => {
    const receipt = await findReceipt(db, principal, params['id'] ?? '');
    if (!receipt) throw new Problem('NOT_FOUND', 'There is no such purchase of yours.');
    return json(200, receipt);
  },
};

export const handler = deployedService().query(getPurchase);
