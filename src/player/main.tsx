import { ask } from './start.ts';
import { render } from 'preact';
import { App } from './app.tsx';
import { exportRecording } from './export-recording.ts';
import { applyTheme } from './preferences.ts';
import { Recorder } from './recorder-context.ts';
import './style.css';

applyTheme();
const root = document.getElementById('app');
if (root !== null) {
  root.replaceChildren();
  render(
    <Recorder.Provider value={{ ask, exportRecording: (...wanted) => exportRecording(ask, ...wanted) }}>
      <App />
    </Recorder.Provider>,
    root,
  );
}
