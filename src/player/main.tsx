import { render } from 'preact';
import { App } from './app.tsx';
import { applyTheme } from './preferences.ts';
import { exportRecording } from './export-recording.ts';
import { Recorder, type Ask } from './recorder-context.ts';
import './style.css';

applyTheme();
const ask: Ask = (path, options) => fetch(path, options);
const root = document.getElementById('app');
if (root !== null) {
  // Renders after the script has been evaluated. Otherwise V8 would parse the script again to determine which line
  // sends the first request.
  queueMicrotask(() => {
    root.replaceChildren();
    render(
      <Recorder.Provider value={{ ask, exportRecording: (...wanted) => exportRecording(ask, ...wanted) }}>
        <App />
      </Recorder.Provider>,
      root,
    );
  });
}
