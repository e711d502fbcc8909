import { SingleBar } from 'cli-progress';
import { print } from './output.ts';

export type Progress = {
  add(rows: number): void;
  /** Ends what is shown while it goes on. */
  stop(): void;
  summary(): string;
};

const barMs = 200;
const lineMs = 5000;

/** A bar in a terminal, a line every five seconds anywhere else. */
export function showProgress(backlogRows: number): Progress {
  const startedMonotonicMs = performance.now();
  let rows = 0;
  const seconds = () => (performance.now() - startedMonotonicMs) / 1000;
  const rate = () => rows / Math.max(0.001, seconds());
  const state = (): State => {
    // The backlog is an estimate when it is large, and more expires meanwhile.
    const total = Math.max(rows, backlogRows);
    const leftSeconds = rows === 0 ? undefined : (total - rows) / rate();
    return { rows, total, rate: `${count(rate())} rows/s`, timeLeft: duration(leftSeconds) };
  };
  const stop = process.stdout.isTTY ? drawBar(state) : printLines(state);
  return {
    add: (more) => {
      rows += more;
    },
    stop,
    summary: () => `deleted ${count(rows)} rows in ${duration(seconds())}, ${count(rate())} rows/s`,
  };
}

type State = { rows: number; total: number; rate: string; timeLeft: string };

function drawBar(state: () => State): () => void {
  const bar = new SingleBar({
    stream: process.stdout,
    format: '{bar} {percentage}%  {value} of {total} rows  {rate}  {timeLeft} left',
    formatValue: (value, _options, type) =>
      type === 'value' || type === 'total' ? count(value) : String(value),
    barCompleteChar: '█',
    barIncompleteChar: '░',
    barsize: 24,
    hideCursor: true,
    // Ours to handle: the current batch is finished first.
    gracefulExit: false,
  });
  const draw = () => {
    const { rows, total, ...words } = state();
    bar.setTotal(total);
    bar.update(rows, words);
  };
  const { rows, total, ...words } = state();
  bar.start(total, rows, words);
  const timer = setInterval(draw, barMs);
  return () => {
    clearInterval(timer);
    draw();
    bar.stop();
  };
}

function printLines(state: () => State): () => void {
  const timer = setInterval(() => {
    const { rows, total, rate, timeLeft } = state();
    print(`${count(rows)} of ${about(total)} rows, ${rate}, ${timeLeft} left`);
  }, lineMs);
  return () => clearInterval(timer);
}

export function count(value: number): string {
  return Math.round(value).toLocaleString('en');
}

/** A count of rows is exact up to ten thousand; see backlog.ts. */
export function about(rows: number): string {
  return `${rows > 10_000 ? 'about ' : ''}${count(rows)}`;
}

export function duration(seconds: number | undefined): string {
  if (seconds === undefined) return '?';
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = `${count(Math.floor(minutes / 60))} h`;
  return minutes % 60 === 0 ? hours : `${hours} ${minutes % 60} min`;
}
