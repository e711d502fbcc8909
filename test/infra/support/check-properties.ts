/**
 * Every property of a template against AWS' own description of its resources: names, what is
 * required, types, and allowed values. What an expression evaluates to is known as far as the
 * description goes: a GetAtt has its attribute's type, a Split is a list, the rest is text.
 */
import { loadAwsServiceSpecSync } from '@aws-cdk/aws-service-spec';
import type { Property, PropertyType, Resource as Spec } from '@aws-cdk/service-spec-types';
import { expressionOf, type Template } from './template.ts';

export const spec = loadAwsServiceSpecSync();

export function specOf(type: string): Spec | undefined {
  // One's own types are custom resources, with whatever properties their function reads.
  const name = type.startsWith('Custom::') ? 'AWS::CloudFormation::CustomResource' : type;
  return spec.lookup('resource', 'cloudFormationType', 'equals', name)[0];
}

/** @returns what is wrong, a line each. */
export function checkProperties(template: Template): string[] {
  const problems: string[] = [];
  for (const [id, { Type, Properties = {} }] of Object.entries(template.Resources)) {
    const found = specOf(Type);
    if (!found) {
      problems.push(`${id}: there is no type ${Type}`);
      continue;
    }
    const isOpen = Type.startsWith('Custom::');
    problems.push(...checkObject(id, Properties, found.properties, template, isOpen));
  }
  return problems;
}

type Properties = Readonly<Record<string, Property>>;

function checkObject(
  path: string,
  given: Record<string, unknown>,
  known: Properties,
  template: Template,
  isOpen = false,
): string[] {
  const missing = Object.entries(known)
    .filter(([name, { required }]) => required && !(name in given))
    .map(([name]) => `${path}.${name} is missing`);
  const wrong = Object.entries(given).flatMap(([name, value]) => {
    const property = known[name];
    if (property) return checkValue(`${path}.${name}`, value, property.type, template);
    return isOpen ? [] : [`${path}.${name}: there is no such property`];
  });
  return [...missing, ...wrong];
}

function checkValue(
  path: string,
  value: unknown,
  type: PropertyType,
  template: Template,
): string[] {
  if (type.type === 'json') return [];
  if (type.type === 'union') {
    const perType = type.types.map((one) => checkValue(path, value, one, template));
    return perType.find((problems) => problems.length === 0) ?? perType[0] ?? [];
  }
  const expression = expressionOf(value);
  if (expression) return checkExpression(path, expression, type, template);
  switch (type.type) {
    case 'array':
      if (!Array.isArray(value)) return [`${path} is no list`];
      return value.flatMap((item, n) => checkValue(`${path}[${n}]`, item, type.element, template));
    case 'map':
      if (!isObject(value)) return [`${path} is no map`];
      return Object.entries(value).flatMap(([key, item]) =>
        checkValue(`${path}.${key}`, item, type.element, template),
      );
    case 'ref': {
      if (!isObject(value)) return [`${path} is no object`];
      const { properties } = spec.get('typeDefinition', type.reference.$ref);
      return checkObject(path, value, properties, template);
    }
    case 'tag':
      return isObject(value) && 'Key' in value && 'Value' in value ? [] : [`${path} is no tag`];
    case 'string':
      if (type.allowedValues && !type.allowedValues.includes(String(value))) {
        return [`${path} is ${value}, none of ${type.allowedValues.join(', ')}`];
      }
      return typeof value === 'string' ? [] : [`${path} is no text`];
    case 'integer':
      return Number.isInteger(value) ? [] : [`${path} is no whole number`];
    case 'number':
      return typeof value === 'number' ? [] : [`${path} is no number`];
    case 'boolean':
      return typeof value === 'boolean' ? [] : [`${path} is neither true nor false`];
    default:
      return typeof value === 'string' ? [] : [`${path} is no ${type.type}`];
  }
}

function checkExpression(
  path: string,
  [name, argument]: readonly [string, unknown],
  type: PropertyType,
  template: Template,
): string[] {
  switch (name) {
    case 'Fn::If': {
      const [, yes, no] = argument as unknown[];
      return [yes, no].flatMap((branch) => checkValue(path, branch, type, template));
    }
    case 'Fn::Split':
    case 'Fn::GetAZs':
      return type.type === 'array' ? [] : [`${path}: ${name} is a list`];
    case 'Fn::GetAtt': {
      const [id, attribute] = argument as [string, string];
      const is = specOf(template.Resources[id]?.Type ?? '')?.attributes[attribute]?.type.type;
      const fits = is === undefined || is === type.type || (isScalar(is) && isScalar(type.type));
      return fits ? [] : [`${path} is no ${type.type}: ${id}.${attribute} is ${is}`];
    }
    default:
      return isScalar(type.type) ? [] : [`${path}: ${name} is text, not ${type.type}`];
  }
}

function isScalar(type: string): boolean {
  return ['string', 'integer', 'number', 'boolean', 'date-time'].includes(type);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
