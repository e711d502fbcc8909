/**
 * Every Ref, GetAtt, Sub, If, DependsOn and Condition of a template leads somewhere; what may
 * not be there is only referred to where it is; and nothing waits for itself.
 */
import { specOf } from './check-properties.ts';
import { expressionOf, namesInSub, type Template } from './template.ts';

interface Reference {
  readonly path: string;
  readonly id: string;
  readonly attribute?: string | undefined;
  /** The conditions that hold wherever this is evaluated. */
  readonly under: readonly string[];
}

/** @returns what is wrong, a line each. */
export function checkReferences(template: Template): string[] {
  const found: Reference[] = [];
  const problems: string[] = [];
  const conditions = template.Conditions ?? {};
  const mustBeCondition = (path: string, name: string | undefined) => {
    if (name !== undefined && !(name in conditions)) {
      problems.push(`${path}: there is no condition ${name}`);
    }
  };
  for (const [id, resource] of Object.entries(template.Resources)) {
    const under = resource.Condition === undefined ? [] : [resource.Condition];
    mustBeCondition(id, resource.Condition);
    for (const name of [resource.DependsOn ?? []].flat()) {
      if (!(name in template.Resources))
        problems.push(`${id} depends on ${name}, which is not there`);
    }
    walk(resource.Properties, id, under, found, mustBeCondition);
  }
  for (const [name, { Value }] of Object.entries(template.Outputs ?? {})) {
    walk(Value, `Outputs.${name}`, [], found, mustBeCondition);
  }
  for (const reference of found) problems.push(...judge(reference, template));
  return [...problems, ...cycles(template, found)];
}

function walk(
  value: unknown,
  path: string,
  under: readonly string[],
  found: Reference[],
  mustBeCondition: (path: string, name: string) => void,
): void {
  if (value === null || typeof value !== 'object') return;
  const [name, argument] = expressionOf(value) ?? [];
  const add = (id: string, attribute?: string) => found.push({ path, id, attribute, under });
  if (name === 'Ref') add(argument as string);
  if (name === 'Fn::GetAtt') add(...(argument as [string, string]));
  if (name === 'Fn::Sub') {
    for (const inText of namesInSub(argument)) {
      const [id, ...attribute] = inText.split('.');
      add(id as string, attribute.join('.') || undefined);
    }
  }
  if (name === 'Fn::If') {
    const [condition, yes, no] = argument as [string, unknown, unknown];
    mustBeCondition(path, condition);
    walk(yes, path, [...under, condition], found, mustBeCondition);
    walk(no, path, [...under, `not ${condition}`], found, mustBeCondition);
    return;
  }
  for (const [key, item] of Object.entries(value)) {
    walk(item, name ? path : `${path}.${key}`, under, found, mustBeCondition);
  }
}

function judge({ path, id, attribute, under }: Reference, template: Template): string[] {
  if (id.startsWith('AWS::')) return attribute === undefined ? [] : [`${path}: ${id}.${attribute}`];
  const resource = template.Resources[id];
  if (!resource) return [`${path} refers to ${id}, which is not there`];
  const problems: string[] = [];
  if (resource.Condition !== undefined && !under.includes(resource.Condition)) {
    problems.push(`${path} refers to ${id}, which is only there if ${resource.Condition}`);
  }
  if (attribute !== undefined && !(attribute in (specOf(resource.Type)?.attributes ?? {}))) {
    problems.push(`${path}: ${resource.Type} has no attribute ${attribute}`);
  }
  return problems;
}

/** CloudFormation refuses what cannot be put in an order. */
function cycles(template: Template, found: readonly Reference[]): string[] {
  const needs = new Map<string, Set<string>>();
  for (const [id, { DependsOn }] of Object.entries(template.Resources)) {
    needs.set(id, new Set([DependsOn ?? []].flat()));
  }
  for (const { path, id } of found) needs.get(path.split('.')[0] as string)?.add(id);
  const problems: string[] = [];
  const done = new Set<string>();
  const visit = (id: string, way: readonly string[]): void => {
    if (way.includes(id)) {
      problems.push(`a circle: ${[...way.slice(way.indexOf(id)), id].join(' needs ')}`);
      return;
    }
    if (done.has(id)) return;
    for (const next of needs.get(id) ?? []) visit(next, [...way, id]);
    done.add(id);
  };
  for (const id of needs.keys()) visit(id, []);
  return problems;
}
