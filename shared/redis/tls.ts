import type tls from 'node:tls';
import { AbstractConnector } from 'ioredis';

/**
 * Connects as ioredis does, and keeps an error listener. ioredis listens for one error of a connection;
 * when Node rejects a certificate and the server then sends an alert, the socket emits a second, and
 * an 'error' event without a listener ends the process.
 */
export class TlsConnector extends AbstractConnector {
  readonly #options: tls.ConnectionOptions;

  /** @param options of ioredis for this connection. */
  constructor(options: unknown) {
    const { host, port, disconnectTimeout, ...rest } = options as ConnectorOptions;
    super(disconnectTimeout);
    const own = typeof rest.tls === 'object' ? rest.tls : {};
    this.#options = { host, port: Number(port), ...own };
  }

  override async connect(): Promise<tls.TLSSocket> {
    // Loaded where it is needed: a bundle would load it with the function.
    const { connect } = await import('node:tls');
    const stream = connect(this.#options);
    stream.on('error', () => {});
    stream.once('error', (error) => {
      this.firstError = error;
    });
    this.stream = stream;
    return stream;
  }
}

interface ConnectorOptions {
  readonly host: string;
  readonly port: number | string;
  readonly disconnectTimeout: number;
  readonly tls: tls.ConnectionOptions | true;
}
