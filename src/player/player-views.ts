/** Views with a terminal. */
export { CompareView } from './compare-view.tsx';
export { RecordingPreview } from './preview.tsx';
export { RecordingView } from './recording-view.tsx';
export { WallView } from './wall-view.tsx';
