/**
 * Names of documents by which the recorders of one store agree who tells an alert: `.alerts/<recording>.<alert>.told`
 * once somebody has been told, `….claim-<n>` for who is about to. They are no part of the archive, and leave with the
 * recording. Pure.
 */
export const ALERTS_FOLDER = '.alerts/';

/** What is known of an alert: it was told, or somebody has claimed it, the latest with the highest number. */
export type AlertMark = 'told' | number;

/** @param alert its id. */
export function alertMarkName(recording: string, alert: string, mark: AlertMark): string {
  return `${ALERTS_FOLDER}${recording}.${alert}.${mark === 'told' ? mark : `claim-${mark}`}`;
}

/** Whose a mark is: the id of the recording; undefined for what {@link alertMarkName} does not write. */
export function recordingOfAlertMark(name: string): string | undefined {
  return /^\.alerts\/(.+)\.alert_[0-9a-f]{32}\.(?:told|claim-\d+)$/.exec(name)?.[1];
}
