/**
 * Function modules read their configuration when they are loaded. Tests wire the
 * definitions to databases of their own; what a module makes for itself opens
 * nothing, and points nowhere.
 */
import { inject } from 'vitest';

process.env['NODE_COMPILE_CACHE'] ??= inject('compileCache');
process.env['DATABASE_URL'] = inject('adminUrl');
process.env['REDIS_URL'] = '';
process.env['DYNAMODB_ENDPOINT'] = 'http://127.0.0.1:9';
process.env['POWERTOOLS_LOG_LEVEL'] ??= 'SILENT';
process.env['POWERTOOLS_METRICS_DISABLED'] ??= 'true';
