/** A compiled template, and how its expressions are walked and evaluated. */

export interface Resource {
  readonly Type: string;
  readonly Properties?: Record<string, unknown>;
  readonly DependsOn?: string | string[];
  readonly Condition?: string;
  readonly DeletionPolicy?: string;
  readonly UpdateReplacePolicy?: string;
}

export interface Template {
  readonly Resources: Record<string, Resource>;
  readonly Conditions?: Record<string, unknown>;
  readonly Outputs?: Record<string, { readonly Value: unknown; readonly Condition?: string }>;
}

/** `["Fn::If", argument]` of `{ "Fn::If": argument }`; undefined for what is no expression. */
export function expressionOf(value: unknown): readonly [string, unknown] | undefined {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return undefined;
  const [only, ...more] = Object.entries(value);
  if (only === undefined || more.length > 0) return undefined;
  return only[0] === 'Ref' || only[0].startsWith('Fn::') ? only : undefined;
}

/** The `${Name}` and `${Name.Attribute}` of a Fn::Sub, without its own variables. */
export function namesInSub(argument: unknown): string[] {
  const [text, variables] = (Array.isArray(argument) ? argument : [argument, {}]) as [
    string,
    object,
  ];
  const names = [...text.matchAll(/\$\{([^!}][^}]*)\}/g)].map(([, name]) => name as string);
  return names.filter((name) => !(name in variables));
}

export function ofType(template: Template, type: string): [string, Resource][] {
  return Object.entries(template.Resources).filter(([, resource]) => resource.Type === type);
}

/** The properties of a resource that must be there, for a test to look at. */
export function propertiesOf<Properties = Record<string, never>>(
  template: Template,
  id: string,
): Properties {
  const resource = template.Resources[id];
  if (!resource) throw new Error(`the template has no ${id}`);
  return (resource.Properties ?? {}) as Properties;
}

/** The template as CloudFormation makes it: conditions decided, and the resources that are left out gone. */
export function decided(template: Template): Template {
  const isTrue = (name: string) => evaluateCondition(template, { Condition: name });
  const resources = Object.entries(template.Resources)
    .filter(([, { Condition }]) => Condition === undefined || isTrue(Condition))
    .map(([id, resource]) => [id, decide(resource, isTrue)]);
  return { ...template, Resources: Object.fromEntries(resources) };
}

function decide(value: unknown, isTrue: (name: string) => boolean): unknown {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map((item) => decide(item, isTrue));
  const [name, argument] = expressionOf(value) ?? [];
  if (name === 'Fn::If') {
    const [condition, yes, no] = argument as [string, unknown, unknown];
    return decide(isTrue(condition) ? yes : no, isTrue);
  }
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, decide(item, isTrue)]),
  );
}

function evaluateCondition(template: Template, condition: unknown): boolean {
  const [[name, argument] = [] as never] = Object.entries(condition as object);
  switch (name) {
    case 'Condition':
      return evaluateCondition(template, template.Conditions?.[argument]);
    case 'Fn::Equals':
      return argument[0] === argument[1];
    case 'Fn::Not':
      return !evaluateCondition(template, argument[0]);
    default:
      throw new Error(`a condition that the tests cannot evaluate: ${name}`);
  }
}
