/** Parses the Dockerfile, so that an image can be built without a container engine. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ROOT } from './project.ts';

export interface Step {
  readonly verb: string;
  readonly text: string;
}

export interface Stage {
  readonly name: string;
  readonly base: string;
  readonly steps: readonly Step[];
}

/** Configuration with which a container starts, in the format of OCI. */
export interface ImageSettings {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly Cmd: readonly string[];
  readonly WorkingDir: string;
  readonly Labels: Readonly<Record<string, string>>;
  /** Health check: a field that Docker adds to the OCI format. Durations are in nanoseconds. */
  readonly Healthcheck: Readonly<Record<string, unknown>>;
}

const WORDS = z.array(z.string()).min(1);
const SECOND_NS = 1_000_000_000;

/** @throws Error if a line is not an instruction */
export function readDockerfile(): readonly Stage[] {
  const source = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  const lines = source
    .split('\n')
    .filter((line) => !/^\s*#/.test(line))
    .join('\n')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n')
    .filter((line) => line.trim() !== '');
  const stages: { name: string; base: string; steps: Step[] }[] = [];
  for (const line of lines) {
    const [, verb = '', text = ''] = /^(\w+)\s+(.*)$/.exec(line) ?? [];
    const [, base = '', name = `stage ${stages.length}`] = /^(\S+)(?: AS (\S+))?$/.exec(text) ?? [];
    if (verb === 'FROM') stages.push({ name, base, steps: [] });
    else if (verb === '' || stages.length === 0) throw new Error(`Dockerfile: ${line} is not understood`);
    else stages.at(-1)?.steps.push({ verb, text });
  }
  return stages;
}

/** Returns the container configuration from the last stage of a Dockerfile. */
export function imageSettings(stages: readonly Stage[]): ImageSettings {
  const steps = stages.at(-1)?.steps ?? [];
  const all = (verb: string): readonly string[] =>
    steps.filter((step) => step.verb === verb).map(({ text }) => text);
  const last = (verb: string): string => all(verb).at(-1) ?? '';
  return {
    User: last('USER'),
    Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', ...all('ENV')],
    Entrypoint: wordsOf(last('ENTRYPOINT')),
    Cmd: wordsOf(last('CMD')),
    WorkingDir: last('WORKDIR'),
    Labels: Object.fromEntries(
      [
        ...all('LABEL')
          .join(' ')
          .matchAll(/([\w.]+)="([^"]*)"/g),
      ].map(([, key, value]) => [key, value]),
    ),
    Healthcheck: healthcheck(last('HEALTHCHECK')),
  };
}

function wordsOf(text: string): readonly string[] {
  return WORDS.parse(JSON.parse(/\[.*\]/.exec(text)?.[0] ?? '[]'));
}

function healthcheck(text: string): Readonly<Record<string, unknown>> {
  const number = (option: string): number =>
    Number(new RegExp(`--${option}=(\\d+)`).exec(text)?.[1] ?? Number.NaN);
  return {
    Test: ['CMD', ...wordsOf(text)],
    Interval: number('interval') * SECOND_NS,
    Timeout: number('timeout') * SECOND_NS,
    StartPeriod: number('start-period') * SECOND_NS,
    Retries: number('retries'),
  };
}
