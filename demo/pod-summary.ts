import { arrayAt, at, flagAt, numberAt, stringAt, type Json, type ApiObject } from './json.ts';

/** Values of the columns READY, STATUS and RESTARTS for a pod. */
export interface PodSummary {
  readonly ready: string;
  readonly status: string;
  readonly restarts: number;
  readonly lastRestart: string;
}

/** Computes the columns like the API server (kubernetes `pkg/printers/internalversion/printers.go`, printPod). */
export function summarizePod(pod: ApiObject): PodSummary {
  const statuses = arrayAt(pod, 'status', 'containerStatuses');
  const total = arrayAt(pod, 'spec', 'containers').length;
  const ready = statuses.filter((status) => flagAt(status, 'ready')).length;
  const lastRestart = statuses
    .map((status) => stringAt(status, 'lastState', 'terminated', 'finishedAt'))
    .reduce((latest, time) => (time > latest ? time : latest), '');
  return {
    ready: `${String(ready)}/${String(total)}`,
    status: statusText(pod, statuses),
    restarts: statuses.reduce<number>((sum, status) => sum + (numberAt(status, 'restartCount') ?? 0), 0),
    lastRestart,
  };
}

function statusText(pod: ApiObject, statuses: readonly Json[]): string {
  if (stringAt(pod, 'metadata', 'deletionTimestamp') !== '') return 'Terminating';
  const phase = stringAt(pod, 'status', 'reason') || stringAt(pod, 'status', 'phase') || 'Unknown';
  const reasons = statuses.map((status) => containerReason(at(status, 'state')));
  const text = reasons.find((reason) => reason !== '') ?? phase;
  const running = statuses.some((status) => flagAt(status, 'ready'));
  return text === 'Completed' && running ? 'Running' : text;
}

function containerReason(state: Json | undefined): string {
  const waiting = stringAt(state, 'waiting', 'reason');
  if (waiting !== '') return waiting;
  const exitCode = numberAt(state, 'terminated', 'exitCode');
  if (exitCode === undefined) return '';
  const signal = numberAt(state, 'terminated', 'signal') ?? 0;
  const fallback = signal === 0 ? `ExitCode:${String(exitCode)}` : `Signal:${String(signal)}`;
  return stringAt(state, 'terminated', 'reason') || fallback;
}
