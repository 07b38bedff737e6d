/**
 * Names of the documents that coordinate alerts among the recorders of a store: `.alerts/<recording>.<alert>.claim-<n>`
 * before the delivery, and `.alerts/<recording>.<alert>.told` after it. The documents are not part of the archive, and
 * are removed together with the recording. Pure functions.
 */
export const ALERTS_FOLDER = '.alerts/';

/** State of an alert: delivered, or claimed with a number. The claim with the highest number is the latest. */
export type AlertMark = 'told' | number;

/** Returns the document name of an alert mark or claim. @param alert id of the alert */
export function alertMarkName(recording: string, alert: string, mark: AlertMark): string {
  return `${ALERTS_FOLDER}${recording}.${alert}.${mark === 'told' ? mark : `claim-${mark}`}`;
}

/** Returns the id of the recording to which an alert mark or claim belongs; undefined for other names. */
export function recordingOfAlertMark(name: string): string | undefined {
  return /^\.alerts\/(.+)\.alert_[0-9a-f]{32}\.(?:told|claim-\d+)$/.exec(name)?.[1];
}
