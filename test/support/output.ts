import { onTestFinished, vi } from 'vitest';

/** Switches metrics and logs on for this test, and collects their JSON lines. */
export function captureOutput(): Record<string, unknown>[] {
  const lines: Record<string, unknown>[] = [];
  vi.stubEnv('POWERTOOLS_METRICS_DISABLED', 'false');
  vi.stubEnv('POWERTOOLS_LOG_LEVEL', 'INFO');
  const write = vi.spyOn(process.stdout, 'write').mockImplementation((chunk) => {
    for (const line of String(chunk).split('\n')) {
      if (line.startsWith('{')) lines.push(JSON.parse(line));
    }
    return true;
  });
  onTestFinished(() => {
    write.mockRestore();
    vi.unstubAllEnvs();
  });
  return lines;
}
