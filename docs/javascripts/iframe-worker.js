// Pages that are opened from the disk may not start a worker, and the theme's search runs in one. There a hidden frame
// takes its place: the same script, the same messages, only in the thread of the page. Without the network.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, document.baseURI);
      this.started = new Promise((resolve) => (script.onload = resolve));
      frame.contentDocument.head.append(script);
    }

    async postMessage(data) {
      await this.started;
      this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
