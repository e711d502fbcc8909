import { deployedService, lastSegment, Problem, type QueryRoute } from '../../shared/index.ts';
import { findReceipt } from './receipts.ts';

export const getPurchase: QueryRoute = {
  name: 'get-purchase',
  run: async ({ principal, request, db }) => {
    const id = lastSegment(request.path);
    const receipt = id === undefined ? undefined : await findReceipt(db, principal, id);
    if (!receipt) throw new Problem('NOT_FOUND', 'There is no such purchase of yours.');
    return {
      statusCode: 200,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(receipt),
    };
  },
};

export const handler = deployedService().query(getPurchase);
