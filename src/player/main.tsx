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
  // Render after the evaluation of the script. A request that starts during the evaluation makes V8 parse the script
  // again, to find the line that started the request.
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
