// middy's own types import an optional peer of middy's, which a strict project without it declares.
declare module '@aws/durable-execution-sdk-js' {
  export type DurableContext = unknown;
}
