import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readRequest } from '../../shared/http/request.ts';
import { requestFingerprint } from '../../shared/http/request-fingerprint.ts';
import { httpEvent } from '../support/requests.ts';

const ofJson = (rawBody: string) =>
  requestFingerprint('alice', readRequest(httpEvent({ rawBody })));

/** JSON as a tree of spellings, so that the same value can be written in many ways. */
type Node =
  | { readonly kind: 'leaf'; readonly spellings: readonly string[] }
  | { readonly kind: 'array'; readonly items: readonly Node[] }
  | { readonly kind: 'object'; readonly members: readonly (readonly [string, Node])[] };

const escaped = (text: string) =>
  `"${Array.from({ length: text.length }, (_, i) => `\\u${text.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')}"`;

const stringSpellings = (text: string) => [JSON.stringify(text), escaped(text)];

const leaf: fc.Arbitrary<Node> = fc
  .oneof(
    fc.constantFrom('null', 'true', 'false', '1.0', '1', '9007199254740993').map((text) => [text]),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map((number) => [JSON.stringify(number)]),
    fc.string({ unit: 'binary' }).map(stringSpellings),
  )
  .map((spellings) => ({ kind: 'leaf', spellings }));

const name = fc.oneof(
  fc.constantFrom('__proto__', 'constructor', '10', '9', '', 'a', 'b'),
  fc.string({ unit: 'binary', maxLength: 4 }),
);

const { node } = fc.letrec<{ node: Node }>((tie) => ({
  node: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    leaf,
    fc.array(tie('node'), { maxLength: 5 }).map((items): Node => ({ kind: 'array', items })),
    fc
      .uniqueArray(fc.tuple(name, tie('node')), { selector: ([name]) => name, maxLength: 5 })
      .map((members): Node => ({ kind: 'object', members })),
  ),
}));

/** Writes the tree; `choose(n)` picks spellings, orders and white space. */
function write(node: Node, choose: (n: number) => number): string {
  const space = () => ['', ' ', '\n\t'][choose(3)];
  const pick = (spellings: readonly string[]) => spellings[choose(spellings.length)] as string;
  switch (node.kind) {
    case 'leaf':
      return space() + pick(node.spellings) + space();
    case 'array':
      return `[${node.items.map((item) => write(item, choose)).join(',') + space()}]`;
    case 'object': {
      const members = node.members.map(
        ([name, value]) => `${space()}${pick(stringSpellings(name))}:${write(value, choose)}`,
      );
      const shuffled = members
        .map((text) => ({ text, at: choose(1000) }))
        .sort((a, b) => a.at - b.at)
        .map(({ text }) => text);
      return `{${shuffled.join(',') + space()}}`;
    }
  }
}

const leavesOf = (node: Node): Node[] =>
  node.kind === 'leaf'
    ? [node]
    : (node.kind === 'array' ? node.items : node.members.map(([, value]) => value)).flatMap(
        leavesOf,
      );

function replaced(node: Node, target: Node, by: Node): Node {
  if (node === target) return by;
  switch (node.kind) {
    case 'leaf':
      return node;
    case 'array':
      return { ...node, items: node.items.map((item) => replaced(item, target, by)) };
    case 'object':
      return {
        ...node,
        members: node.members.map(([name, value]) => [name, replaced(value, target, by)]),
      };
  }
}

const chooser = fc.infiniteStream(fc.nat()).map((stream) => (n: number) => stream.next().value % n);
const first = () => 0;

test('any JSON value written another way has the same fingerprint', () => {
  fc.assert(
    fc.property(node, chooser, (tree, choose) => {
      expect(ofJson(write(tree, choose))).toBe(ofJson(write(tree, first)));
    }),
    { numRuns: 500 },
  );
});

test('any JSON value with one leaf changed has another fingerprint', () => {
  fc.assert(
    fc.property(node, leaf, fc.nat(), chooser, (tree, by, at, choose) => {
      const leaves = leavesOf(tree);
      const target = leaves[at % leaves.length];
      fc.pre(target !== undefined && write(target, first) !== write(by, first));
      const changed = replaced(tree, target as Node, by);
      expect(ofJson(write(changed, choose))).not.toBe(ofJson(write(tree, first)));
    }),
    { numRuns: 500 },
  );
});
